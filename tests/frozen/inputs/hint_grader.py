def grade(output, hint, metadata):
    found = (hint or "").lower() in output.lower()
    where = {"category": metadata.get("category"), "length": len(output)}
    return {"pass": found, "score": float(found), "reasoning": "by a file", "outcome": where}
