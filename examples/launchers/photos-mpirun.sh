#!/usr/bin/env bash
# One session per rank that Open MPI starts, on this host or on the hosts of a hostfile:
#   photos-mpirun.sh 4 [--hostfile HOSTS]
set -euo pipefail
ranks=${1:?how many ranks}
shift

PENSTOCK_GROUP_SECRET=$(penstock secret)
export PENSTOCK_GROUP_SECRET

mkdir -p reports
# -x passes a variable to other hosts by its name: no command line contains the secret.
exec mpirun -n "$ranks" "$@" -x PENSTOCK_GROUP_SECRET \
  sh -c 'exec penstock run photos.toml --set sampler.rank=auto --set "gpu.device=cuda:$OMPI_COMM_WORLD_LOCAL_RANK" \
    --report "reports/rank$OMPI_COMM_WORLD_RANK.json"'
