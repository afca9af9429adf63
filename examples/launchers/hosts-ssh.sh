#!/usr/bin/env bash
# Starts a loader host by ssh on each of these machines, and ends when all have ended:
#   hosts-ssh.sh trainer:7077 hosts.secret user@one user@two
# The machines have penstock on their PATH, and the data where the session has it. When this script ends (by Ctrl-C, for example) or a
# connection breaks, the hosts finish their batches and leave. Under tmux or systemd-run it outlives your login.
set -euo pipefail
session=${1:?where the session listens, ADDRESS:PORT}
secret=${2:?the file with the secret}
shift 2
exec penstock host --join "$session" --secret-file "$secret" "${@/#/--on=}"
