#!/bin/sh
# test_no_spills.sh LOG...: ptxas saw kernels, and none of them spills registers or uses a stack.
for log; do
    kernels=$(grep -c 'Used [0-9]* registers' "$log")
    bad=$(grep -E '[1-9][0-9]* bytes (stack frame|spill)' "$log")
    if [ "$kernels" -eq 0 ] || [ -n "$bad" ]; then
        echo "$log: $kernels kernels; ${bad:-none seen}"
        exit 1
    fi
    echo "$log: $kernels kernels without spills"
done
