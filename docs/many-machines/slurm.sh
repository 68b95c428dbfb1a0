#!/usr/bin/env bash
# annulus load on the nodes of a Slurm job, and the sum of what they record.
#
#   sbatch --nodes 8 slurm.sh OPTIONS...      options of annulus load; a rate is that of one node
#
# Writes load-JOB-N.json for each node, and load-JOB.json, in the directory of the submission, which nodes of a cluster
# usually share.
#SBATCH --job-name=annulus-load
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --time=00:15:00
set -euo pipefail
[ $# -gt 0 ] || { echo "usage: sbatch slurm.sh OPTIONS of annulus load..." >&2; exit 2; }
# All begin to measure together, after this many seconds to launch, to connect and to warm up.
start=$(($(date +%s) + ${LEAD:-20}))
status=0
# shellcheck disable=SC2016
srun bash -c '
    exec annulus load "${@:2}" --start-at "$1" --label "$(hostname)" --json "load-$SLURM_JOB_ID-$SLURM_PROCID.json"
' rank "$start" "$@" || status=$?
annulus load merge "load-$SLURM_JOB_ID"-*.json -o "load-$SLURM_JOB_ID.json"
exit "$status"
