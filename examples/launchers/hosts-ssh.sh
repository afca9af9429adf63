#!/usr/bin/env bash
# Starts a loader host by ssh on each of these machines, and ends when all have ended:
#   hosts-ssh.sh trainer:7077 hosts.secret user@one user@two
# The machines have penstock on their PATH, and the data where the session has it. When this script ends, by Ctrl-C for example, the
# hosts finish their batches and leave; so they do when a connection breaks. Under tmux or systemd-run it outlives your login.
set -euo pipefail
session=${1:?where the session listens, ADDRESS:PORT}
secret=${2:?the file with the secret}
shift 2

# On the other machine. The first line of its input is the secret, which stays out of command lines; the file has no name when the host
# reads it. The input ends when the connection ends.
read -r -d '' remote <<'REMOTE' || true
umask 077
file=$(mktemp)
IFS= read -r secret && printf '%s\n' "$secret" >"$file"
exec 3<&0 4<"$file"
rm -f "$file"
penstock host --join "$session" --secret-file /proc/self/fd/4 3<&- &
host=$!
{ cat <&3 >/dev/null; kill -TERM "$host" 2>/dev/null; } >/dev/null 2>&1 4<&- &
watch=$!
wait "$host"
code=$?
kill "$watch" 2>/dev/null
exit "$code"
REMOTE

hosts=()
for machine in "$@"; do
  # tail ends when this script has ended.
  "${SSH:-ssh}" -o ServerAliveInterval=15 "$machine" "session=$(printf %q "$session"); $remote" \
    < <(cat "$secret"; exec tail --pid=$$ -f /dev/null) &
  hosts+=($!)
done
code=0
for host in "${hosts[@]}"; do wait "$host" || code=$?; done
exit "$code"
