#!/bin/bash
#SBATCH --job-name=cxr-mllm
#SBATCH --partition=protected
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --time=00:10:00
#SBATCH --signal=USR2@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=/enclave/home/%u/cxr-mllm-%j.out
#
# Usage: sbatch job.sh [DATA [OUT [train.py options]]]
#   DATA  folder of NNN.dcm and NNN.txt          default /enclave/data/cxr
#   OUT   folder for the checkpoint              default /enclave/home/$USER/cxr-mllm
# A second job with the same OUT goes on from the checkpoint there.

set -u
recipe=${ENCLAVE_RECIPES:-/usr/share/enclave/recipes}/cxr-mllm
data=${1:-/enclave/data/cxr}
out=${2:-/enclave/home/$USER/cxr-mllm}
shift $(( $# < 2 ? $# : 2 ))

# The plugin injects these in an enclave; here they make the job right under bare Slurm too.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} OPENBLAS_NUM_THREADS=${OPENBLAS_NUM_THREADS:-1}
export PYTHONDONTWRITEBYTECODE=1 PYTHONNOUSERSITE=1
# srun of Slurm 22.05 does not take over --cpus-per-task from the batch job.
export SRUN_CPUS_PER_TASK=${SRUN_CPUS_PER_TASK:-${SLURM_CPUS_PER_TASK:-1}}

step= notice= cancelled=0 again=1
pass_on () { [ -z "$step" ] || [ -z "$notice" ] || kill -s "$notice" "$step"; }
trap 'notice=USR2; again=1; pass_on' USR2
trap 'notice=TERM; again=1; cancelled=1; pass_on' TERM	# cancelled or out of time: never again

# In the background, because bash would hold back a notice until a foreground command ends.
srun --kill-on-bad-exit=1 --wait=60 \
	/usr/bin/python3 "$recipe/train.py" --data "$data" --out "$out" "$@" &
step=$!
pass_on						# a notice that came before there was a step
while [ "$again" -eq 1 ]; do			# a trap ends the wait, but not the step
	again=0
	wait "$step"
	status=$?
done

# 75: stopped on notice with a checkpoint written. Queue again, but never in an endless circle.
if [ "$status" -eq 75 ] && [ "$cancelled" -eq 0 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt 10 ]; then
	scontrol requeue "$SLURM_JOB_ID" 2>/dev/null ||
		echo "cxr-mllm: stopped early; submit again with the same OUT to go on" >&2
fi
exit "$status"
