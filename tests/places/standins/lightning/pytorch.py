"""The base class of its callbacks."""


class Callback:
    def on_train_start(self, trainer, module):
        pass

    on_fit_end = on_before_backward = on_train_start
