#!/usr/bin/env bash
# annulus load on every rank of an MPI job, and the sum of what they record.
#
#   mpi.sh RANKS OPTIONS...      options of annulus load; a rate is that of one rank
#
# Writes rank-N.json and rank-N.txt for each rank, and all.json. The directory must be the same on all machines (NFS, a
# cluster's home); if it is not, copy the files together and run the last command there.
#
# LEAD             seconds until all begin to measure together (20): the time to launch, to connect and to warm up
# MPIRUN_OPTIONS   options of mpirun, such as --hostfile hosts
# ANNULUS          the program (annulus)
set -euo pipefail
ranks=${1:?usage: mpi.sh RANKS OPTIONS of annulus load...}
shift
start=$(($(date +%s) + ${LEAD:-20}))
rm -f rank-*.json all.json
status=0
# Open MPI, MPICH and Slurm name the rank in different variables.
# shellcheck disable=SC2016,SC2086
mpirun ${MPIRUN_OPTIONS:-} -np "$ranks" bash -c '
    rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-${SLURM_PROCID:?not under mpirun}}}
    exec "${ANNULUS:-annulus}" load "${@:2}" --start-at "$1" --label "rank $rank" --json "rank-$rank.json" >"rank-$rank.txt"
' rank "$start" "$@" || status=$?
"${ANNULUS:-annulus}" load merge rank-*.json -o all.json
exit "$status"
