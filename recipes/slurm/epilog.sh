#!/bin/bash
# For administrators: Epilog=/etc/slurm/epilog.sh, or called by the epilog that you have. After a job that failed it saves
# what this node forgets: the kernel log since the job's start, what the user left in /dev/shm, flight-recorder dumps in
# /tmp, the state of the GPUs. It serves jobs that have a folder NAME-JOBID in their working directory, as train.sbatch
# makes it, and puts all into node=NODE/ there, as files of the job's user.
#
# An epilog that fails or is slow drains the node. This one exits with 0 after WAIT seconds at most; what is not done by
# then goes on without it, for LONGEST seconds at most.
#
# Root opens no path that the user can change: a symbolic link there would be followed with root's rights. Root reads the
# kernel log into a pipe; all else is done with the rights of the user.
# shellcheck disable=SC2317 # the functions are called from another shell

PATH=${EPILOG_PATH:-/usr/sbin:/usr/bin:/sbin:/bin} # Slurm gives an epilog none; EPILOG_PATH is for tools elsewhere
export PATH LC_ALL=C
WAIT=2
LONGEST=120
LARGEST=$((32 << 20)) # bytes of one file

kernel_log() {
  timeout -k 1 10 dmesg --time-format iso --since "$since" ||
    timeout -k 1 10 journalctl --dmesg --quiet --no-pager --output short-iso-precise --since "$since"
}

# With the rights of the user: the kernel log from standard input and the rest, into the folder of the job.
# $1 working directory, $2 job, $3 node, $4 since, $5 bytes of one file
save() {
  local folder mine=
  umask 077
  cd -- "$1" || return
  for folder in ./*-"$2"; do
    if [ -d "$folder" ] && [ ! -L "$folder" ] && [ -O "$folder" ]; then mine=$folder; fi
  done
  [ -n "$mine" ] && mkdir -p "$mine/node=$3" && cd "$mine/node=$3" || return
  tail -c "$5" >kernel.txt
  {
    df -h /dev/shm
    find /dev/shm -maxdepth 2 -user "$(id -u)" -ls | head -n 1000
  } >shm.txt
  find /tmp -maxdepth 1 -type f -user "$(id -u)" -name '*_trace_rank_*' -newermt "$4" -size "-$5c" \
    -exec cp --no-clobber --target-directory=. {} +
  # last, since it hangs where a GPU does
  if command -v nvidia-smi; then timeout -k 1 60 nvidia-smi -q | head -c "$5" >nvidia-smi.txt; fi
}

as_user() {
  setpriv --reuid="$SLURM_JOB_UID" --regid="$SLURM_JOB_GID" --init-groups --no-new-privs --reset-env \
    bash -c "PATH=$PATH; $(declare -f save); save \"\$@\"" save \
    "$SLURM_JOB_WORK_DIR" "$SLURM_JOB_ID" "$SLURMD_NODENAME" "$since" "$LARGEST"
}

behind() {
  # A minute earlier, since the kernel's clock drifts; an old release of Slurm gives no start, then the last day.
  since=$(date --date "@$((${SLURM_JOB_START_TIME:-$(date +%s) - 86400} - 60))" "+%F %T")
  kernel_log | as_user
}

# Jobs of root have no rights to drop, and jobs that ended well nothing to explain.
if [ "${SLURM_JOB_UID:-0}" -gt 0 ] && [ "${SLURM_JOB_EXIT_CODE2:-}" != 0:0 ]; then
  export -f kernel_log save as_user behind
  export LARGEST
  setsid timeout -k 1 "$LONGEST" bash -c behind </dev/null &
  for ((i = 0; i < WAIT * 10; i++)); do
    kill -0 $! || break
    sleep 0.1
  done
fi >/dev/null 2>&1
exit 0
