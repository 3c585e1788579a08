#!/bin/sh
# Runs nvcc and keeps what ptxas says of registers and spills: compile.sh LOG NVCC ARGUMENTS...
log=$1
shift
"$@" -Xptxas -v 2>"$log" || {
    cat "$log" >&2
    exit 1
}
grep -E 'warning|error' "$log" >&2
exit 0
