#!/usr/bin/env bash
# One session per GPU of this host, started by torchrun. For several hosts pass --nnodes, --node-rank and
# --rdzv-endpoint as for a training script:
#   photos-torchrun.sh [options of torchrun]
set -euo pipefail

PENSTOCK_GROUP_SECRET=${PENSTOCK_GROUP_SECRET:-$(penstock secret)}
export PENSTOCK_GROUP_SECRET  # with several hosts, set the same secret on all of them first

mkdir -p reports
exec torchrun --nproc-per-node "${RANKS_PER_HOST:-gpu}" "$@" --no-python \
  sh -c 'exec penstock run photos.toml --set sampler.rank=auto --set "gpu.device=cuda:$LOCAL_RANK" --report "reports/rank$RANK.json"'
