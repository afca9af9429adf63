#!/usr/bin/env bash
# A session on this machine, and a loader host on each machine of a hostfile, started by Open MPI:
#   photos-hosts-mpirun.sh trainer:7077 [--hostfile HOSTS]      trainer: this machine, as the others know it
set -euo pipefail
session=${1:?where hosts join, ADDRESS:PORT}
shift

(umask 077 && penstock secret > hosts.secret)  # in a folder that all machines share

mpirun --map-by ppr:1:node --bind-to none "$@" penstock host --join "$session" --secret-file hosts.secret &
penstock run photos.toml --set "loader.hosts.listen=0.0.0.0:${session##*:}" --set loader.hosts.secret_file=hosts.secret \
  --state photos.state --report report.json
wait  # the hosts end with the session
