"""A run that prints what it is sent."""
run = None


class Html:
    def __init__(self, text, inject=True):
        self.text = text


class Run:
    def log(self, values, commit=True):
        for name, value in values.items():
            print('wandb', name, 'a page' if isinstance(value, Html) else value)

    def finish(self):
        pass


def init(**_):
    global run
    run = Run()
    return run


def log(values, commit=True):
    run.log(values, commit)
