#!/bin/sh
# test_cuda_absent.sh BENCH PLUGIN|none OLD_DRIVER|none STUB: without a usable driver, a library, or the plug-in,
# --device cuda says what is missing and exits 1, and other devices work. OLD_DRIVER: a libcuda.so.1 that serves an
# older CUDA; STUB: the toolkit's libcuda.so.
bench=$1 plugin=$2 old_driver=$3 stub=$4 model=$DITTO_TEST_ROOT/tests/models/tiny.safetensors
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
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    mkdir "$scratch/old" "$scratch/stub"
    export DITTO_CUDA_PLUGIN="$plugin"
    expect "no driver" "no NVIDIA driver on this machine"
    ln -s "$(realpath "$old_driver")" "$scratch/old/libcuda.so.1"
    LD_LIBRARY_PATH=$scratch/old:${LD_LIBRARY_PATH:-} expect "driver too old" \
        "the NVIDIA driver is too old: it serves CUDA 12.2, this program needs 1"
    if [ -e "$stub" ]; then
        ln -s "$stub" "$scratch/stub/libcuda.so.1"
        LD_LIBRARY_PATH=$scratch/stub:${LD_LIBRARY_PATH:-} expect "the stub" "is the CUDA toolkit's stub, not a driver"
    fi
    # A name that no library has, in place of the one that the plug-in asks for.
    for library in libnccl libcudnn libcublasLt; do
        changed=$(echo $library | tr l x)
        LC_ALL=C sed "s/$library\.so/$changed.so/g" "$plugin" >"$scratch/ditto_cuda.so"
        cmp -s "$plugin" "$scratch/ditto_cuda.so" && continue # built without it
        DITTO_CUDA_PLUGIN=$scratch/ditto_cuda.so expect "$library missing" \
            "the CUDA plug-in cannot be loaded: $changed.so"
    done
    unset DITTO_CUDA_PLUGIN
fi
"$bench" list devices | grep -q '^cuda .*not here: ' || exit 1
"$bench" run --device ref --model "$model" --resolution 8 --steps 1 --repeat 1 >/dev/null
