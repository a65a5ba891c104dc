"""Messages as verifiers 0.3.1 has them."""


class _Message:
    def __init__(self, **parts):
        self.__dict__.update(parts)

    def model_dump(self, *, exclude_none):
        assert exclude_none
        return {name: part for name, part in vars(self).items() if part is not None}


class ToolCall(_Message):
    pass


class ResponseMessage(_Message):
    role = "assistant"


class Response(_Message):
    pass


class UserMessage(_Message):
    pass
