"""``python -m nanovllm.cli``: the ``nanovllm`` command where its script is not on the path."""

import sys

from nanovllm.cli.main import main

sys.exit(main())
