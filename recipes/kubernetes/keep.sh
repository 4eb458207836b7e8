#!/bin/sh
# Runs a command, keeps what it prints in $LOGS/agent.log, and shows it as before; keeps its exit code in $LOGS/end.log.
# Then runs $AFTER, where that is set.
#
#     LOGS=logs AFTER="sh verdict.sh" sh keep.sh torchrun --log-dir logs/ranks --tee 3 train.py
#
# The exit code is the command's. The command writes to a file and not to a pipe: it does not die of what shows it,
# and the file is whole when the command has ended.
if ! { mkdir -p "$LOGS" && touch "$LOGS/agent.log"; }; then
  exec "$@" # nowhere to write: the job runs all the same
fi

"$@" >"$LOGS/agent.log" 2>&1 &
job=$!
trap 'kill -TERM "$job" 2>/dev/null' TERM # this shell is pid 1 of the container, and hands no signal on by itself
tail -n +1 -f --pid="$job" "$LOGS/agent.log" &
shown=$!

wait "$job"
code=$?
while kill -0 "$job" 2>/dev/null; do # what ended was the waiting, by a signal
  wait "$job"
  code=$?
done
echo "command terminated with exit code $code" >"$LOGS/end.log" # is missing where all of this was killed
wait "$shown"

[ -z "${AFTER:-}" ] || sh -c "$AFTER"
exit "$code"
