"""Write every algorithm's pure defaults, its JSON schema, and the packaged templates into a folder."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from seqrl.configs import config_factory, get_all_registered_configs, read_config_values, template_names
from seqrl.core.files import expanded, write_json
from seqrl.core.plugins import load_plugins
from seqrl.scripts._script import script


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(prog="seqrl generate-config-templates", description=__doc__)
    p.add_argument("--output", type=expanded, default=Path("config_templates"), help="folder (default %(default)s)")
    p.add_argument("--plugin", action="append", default=[], help="Python file or module to import first")
    return p


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Write the files, and return the exit code."""
    args = parser().parse_args(argv)
    load_plugins(args.plugin)
    args.output.mkdir(parents=True, exist_ok=True)
    written = []
    for name, config_class in get_all_registered_configs().items():
        write_json(args.output / f"{name}_defaults.json", config_factory(name).to_json())
        write_json(args.output / f"{name}_schema.json", json.loads(json.dumps(config_class.model_json_schema())))
        written += [f"{name}_defaults.json", f"{name}_schema.json"]
    for template in template_names():
        write_json(args.output / template, read_config_values(template))
        written.append(template)
    print("\n".join(str(args.output / name) for name in written))
    return 0


if __name__ == "__main__":
    sys.exit(main())
