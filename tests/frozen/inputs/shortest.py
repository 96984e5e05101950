def grade(id, runs):
    order = sorted(runs, key=lambda label: (len(runs[label].get("output", "")), label))
    return {"rankings": [{"run": r, "rank": n, "score": 1 / n} for n, r in enumerate(order, 1)]}
