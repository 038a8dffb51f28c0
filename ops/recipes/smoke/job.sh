#!/bin/bash
#SBATCH --job-name=smoke
#SBATCH --partition=protected
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --time=00:01:00
#SBATCH --output=/enclave/home/%u/smoke-%j.out
#
# Usage: sbatch job.sh [DIR [smoke.py options]]        DIR: default /enclave/home/$USER/smoke

set -u
recipe=${ENCLAVE_RECIPES:-/usr/share/enclave/recipes}/smoke
folder=${1:-/enclave/home/$USER/smoke}
shift $(( $# < 1 ? $# : 1 ))
exec srun --kill-on-bad-exit=1 /usr/bin/python3 "$recipe/smoke.py" "$folder" "$@"
