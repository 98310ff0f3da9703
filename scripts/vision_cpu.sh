#!/usr/bin/env bash
# Lets vLLM load models that see on a machine without a GPU, in the active virtual environment. It
# needs the Python half of torchvision. Package registries have torchvision for CUDA alone, whose
# operators cannot be loaded here: three of them are declared instead, before torchvision is
# imported in any process. None of them is called. With PyTorch's own CPU index this is not needed:
# install torchvision from there.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
bash "$here/scripts/install_locked.sh" vision python
site=$(python -c "import sysconfig; print(sysconfig.get_paths()['purelib'])")
cat > "$site/torchvision_operators.py" <<'PYTHON'
"""Declares operators that torchvision's CUDA build would bring, once torchvision is imported."""

import importlib.abc
import sys

OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, "
    "SymInt pooled_width, int sampling_ratio, bool aligned) -> Tensor",
)


class Declares(importlib.abc.MetaPathFinder):
    library = None

    def find_spec(self, name, path, target=None):
        if name == "torchvision" and Declares.library is None:
            import torch

            Declares.library = torch.library.Library("torchvision", "DEF")
            for operator in OPERATORS:
                Declares.library.define(operator)
        return None


sys.meta_path.insert(0, Declares())
PYTHON
echo "import torchvision_operators" > "$site/torchvision_operators.pth"
python -c "from transformers import Qwen2VLVideoProcessor; print('models that see can be loaded')"
