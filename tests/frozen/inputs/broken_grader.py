def grade(output):
    if "42" in output:
        raise ValueError("broken on purpose")
    return {"pass": True, "score": 0.5}
