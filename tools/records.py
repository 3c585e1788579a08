"""Committed records: read, and written without what a machine adds."""
import json


def read(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def seal(record):
    """Without what says where a run kept its files and whose machine it was."""
    provenance = record["provenance"]
    provenance["host"].update(name=None, kernel=None)
    provenance["argv"] = ["bench"] + [word for word in provenance["argv"][1:] if not
                                      word.startswith(("--output", "--reference-cache"))]
    return record


def write(records, path):
    with open(path, "w", encoding="utf-8") as file:
        for record in records:
            file.write(json.dumps(seal(record), separators=(",", ":")) + "\n")
