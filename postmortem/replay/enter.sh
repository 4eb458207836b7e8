# Runs a command in fresh mount and UTS namespaces: sh enter.sh HOSTNAME HOSTS SHM FOLDER SIZE COMMAND...
# $1 host name or "-", $2 hosts file or "-", $3 MiB of /dev/shm or 0, $4 folder, $5 its KiB or 0.
set -e
[ "$1" = - ] || hostname "$1"
[ "$2" = - ] || mount --bind "$2" /etc/hosts
[ "$3" = 0 ] || mount -t tmpfs -o "size=${3}m" tmpfs /dev/shm
[ "$5" = 0 ] || mount -t tmpfs -o "size=${5}k" tmpfs "$4"
shift 5
exec "$@"
