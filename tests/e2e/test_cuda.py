"""Device cuda over the emulator ($DITTO_CUDA_PLUGIN): what its records say. cuDNN is not emulated, so every
attention is the plug-in's own."""
from harness import TINY, bench, main, parse


def point(*words, env=None):
    """The exit code and the record of one small point."""
    done = bench("run", "--model", TINY, "--resolution", "8", "--steps", "1", "--repeat", "1", "--warmup-runs", "0",
                 *words, env=env)
    return done.returncode, parse(done.stdout)[-1]


def the_record_names_the_attention(_folder):
    for words in (["--strategy", "ring", "--gpus", "2", "--transport", "local"], ["--transport", "nccl"]):
        code, record = point("--device", "cuda", *words)
        assert code == 0 and record["provenance"]["attention"] == "tiles", record
    code, record = point("--device", "ref")
    assert code == 0 and "attention" not in record["provenance"], record


def nccl_wants_a_gpu_for_each_rank(_folder):
    code, record = point("--device", "cuda", "--transport", "nccl", "--strategy", "tp", "--gpus", "2",
                         env={"DITTO_EMU_GPUS": "1"})
    assert code == 1 and record["status"] == "unsupported", record
    assert "ranks 0 and 1 share one" in record["reason"], record["reason"]


main([the_record_names_the_attention, nccl_wants_a_gpu_for_each_rank])
