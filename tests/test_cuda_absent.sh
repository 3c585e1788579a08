#!/bin/sh
# test_cuda_absent.sh BENCH PLUGIN|none: without a driver, or without the plug-in, --device cuda says what is
# missing and exits 1, and other devices work.
bench=$1 plugin=$2 model=$DITTO_TEST_ROOT/tests/models/tiny.safetensors
if [ -e /dev/nvidia0 ]; then
    echo "this machine has a GPU"
    exit 77
fi
expect() { # DESCRIPTION TEXT
    output=$("$bench" run --device cuda --model "$model" 2>&1)
    code=$?
    case $output in
    *"\"status\":\"unsupported\""*"$2"*) ;;
    *) code="without '$2': $output" ;;
    esac
    if [ "$code" != 1 ]; then
        echo "$1: exit $code"
        exit 1
    fi
}
DITTO_CUDA_PLUGIN=/nowhere/ditto_cuda.so expect "plug-in missing" "the CUDA plug-in is missing"
DITTO_CUDA_PLUGIN=$model expect "not a plug-in" "the CUDA plug-in cannot be loaded"
if [ "$plugin" != none ]; then
    DITTO_CUDA_PLUGIN=$plugin expect "no driver" "no NVIDIA driver on this machine"
fi
"$bench" list devices | grep -q '^cuda .*not here: ' || exit 1
"$bench" run --device ref --model "$model" --resolution 8 --steps 1 --repeat 1 >/dev/null
