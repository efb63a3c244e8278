"""helper.py DRIVER SOCKET: maps what it is handed in a CUDA context of its own, and computes there."""

import ctypes
import importlib.util
import json
import os
import socket
import sys
import time

spec = importlib.util.spec_from_file_location("cuda_driver", sys.argv[1])
cuda_driver = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cuda_driver)
driver = cuda_driver.Driver()
library = ctypes.CDLL("libcuda.so.1")
channel = socket.socket(fileno=int(sys.argv[2]))
while True:
    data, descriptors, _, _ = socket.recv_fds(channel, 4096, 1)
    if not descriptors:
        break
    told = json.loads(data)
    time.sleep(0.3)
    window = cuda_driver.Window(driver, told["mapped_bytes"])
    window.show(descriptors[0], told)
    values = (ctypes.c_float * told["n"])()
    size = ctypes.c_size_t(ctypes.sizeof(values))
    library.cuMemcpyDtoH_v2(values, ctypes.c_ulonglong(window.address + told["x"]), size)
    values[:] = [told["alpha"] * value for value in values]
    library.cuMemcpyHtoD_v2(ctypes.c_ulonglong(window.address + told["out"]), values, size)
    window.close()
    os.close(descriptors[0])
