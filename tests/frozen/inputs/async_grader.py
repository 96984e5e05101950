async def grade(trial):
    return bool(trial.output)
