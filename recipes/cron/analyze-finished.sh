#!/bin/sh
# Looks at the folders of jobs, and analyzes each that has ended, once: again only if it was written to since.
#
#     analyze-finished.sh /data/jobs /data/postmortem
#
# A folder has ended when nothing in it was written for $QUIET minutes. For /data/jobs/train-1 there is
# then /data/postmortem/train-1/report.html, brief.json and brief.md. It says one line for each failure, which cron mails;
# NOTIFY is a command that is given the brief of each: NOTIFY="python3 /opt/postmortem/notify.py slack"
#
# exit codes: 0 all were looked at, or the run before this one still looks; 1 an analysis failed, and is tried again
# the next time; 2 usage
set -u
if [ $# != 2 ] || [ ! -d "$1" ] || ! mkdir -p "$2"; then
  echo "usage: $0 FOLDER-OF-JOBS FOLDER-FOR-REPORTS" >&2
  exit 2
fi
failed=0
exec 9>"$2/.lock"
flock -n 9 || exit 0

for job in "$1"/*/; do
  name=$(basename "$job")
  out=$2/$name
  [ -n "$(find "$job" -type f -print -quit)" ] || continue # nothing there yet
  [ -z "$(find "$job" -type f -mmin "-${QUIET:-30}" -print -quit)" ] || continue # still at work
  if [ -e "$out/done" ] && [ -z "$(find "$job" -type f -newer "$out/done" -print -quit)" ]; then
    continue
  fi
  mkdir -p "$out"
  touch "$out/begun" # and not afterwards: what is written meanwhile is newer
  timeout "${LIMIT:-1800}" postmortem analyze "$job" --quiet --exit-code --brief \
    -o "$out/report.html" -o "$out/brief.json" -o "$out/brief.md" 9>&-
  code=$?
  case $code in
  0 | 3 | 12) ;; # healthy, no logs at all, recovered
  10 | 11)
    printf '%s: %s\n' "$name" "$(head -n 1 "$out/brief.md")"
    [ -z "${NOTIFY:-}" ] || JOB=$name sh -c "$NOTIFY" <"$out/brief.json" 9>&-
    ;;
  *)
    echo "$name: postmortem ended with exit code $code" >&2
    failed=1
    continue
    ;;
  esac
  mv "$out/begun" "$out/done"
done
exit "$failed"
