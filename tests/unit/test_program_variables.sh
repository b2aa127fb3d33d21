#!/bin/sh
# A program's state is in structs that are handed down, so that several copies
# of it run in one process. No variable outlives its function but these:
#   log_*   of base/log.c
# Usage: test_program_variables.sh PROGRAM...
set -eu

allowed='log_(program|format|threshold|told|lost)'
# What compilers and libgcc put in by themselves, and variables of libraries.
compiler='completed\.[0-9]+|__TMC_END__|__dso_handle|__cpu_(model|features2)'
compiler="$compiler|.+@.*"
# What nvcc puts into a program with kernels, and the CUDA runtime in it.
compiler="$compiler|DW\.ref\.__gxx_personality_v0|libcudart_static_.+"
compiler="$compiler|_ZL[0-9]+__cudaFatCubinHandle"
compiler="$compiler|_Z(GV)?ZL?[0-9]+__device_stub__.+"

for program; do
    variables=$(objdump -t "$program" |
        awk '$0 ~ / O / && / \.(data|bss|tdata|tbss)[ \t]/ {print $NF}
             / O \*COM\*/ {print $NF}' | sort -u)
    if nm "$program" | grep -qE ' __(asan|ubsan|gcov|llvm)_'; then
        echo "an instrumented build has variables of its own: $program"
        exit 77
    fi
    if [ -z "$variables" ]; then
        echo "no symbols found in $program"
        exit 1
    fi
    bad=$(echo "$variables" | grep -vxE "$allowed|$compiler" || true)
    if [ -n "$bad" ]; then
        echo "variables of the whole process in $program:" $bad
        exit 1
    fi
done
echo "no variables of the whole process but the log's: $# programs"
