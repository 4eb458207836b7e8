#!/bin/sh
# Analyzes $LOGS: the whole report in $REPORT.html, the short verdict in $REPORT.md, in the container's log, and in its
# termination message, which `kubectl describe pod` shows for as long as there is a pod.
#
#     LOGS=/data/train-1/logs REPORT=/data/train-1/report sh verdict.sh
message=${MESSAGE:-/dev/termination-log}

# Nothing but SIGKILL ends keep.sh before it has written this. Without it, logs that just stop look like those of a good run.
for log in "$LOGS/agent.log" "$LOGS"/*/agent.log; do
  end=${log%/*}/end.log
  [ ! -e "$log" ] || [ -e "$end" ] || echo "the container was killed: command terminated with exit code 137" >"$end"
done

mkdir -p "${REPORT%/*}"
if timeout "${LIMIT:-300}" postmortem analyze "$LOGS" --quiet --brief -o "$REPORT.html" -o "$REPORT.md"; then
  cat "$REPORT.md"
  # The kubelet takes 4096 bytes; half a character at the end would make all of it invalid UTF-8.
  head -c "${BYTES:-4096}" "$REPORT.md" | iconv -c -f UTF-8 -t UTF-8 >"$message"
else
  echo "postmortem: exit code $?; the logs are in $LOGS" | tee "$message"
fi
exit 0 # whether a job failed is for the job to say
