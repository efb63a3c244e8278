def scale(out, x, *, alpha):
    while True:
        pass
