// liftbench stand-in: the CUDA toolkit in use has no cuBLASLt. PyTorch's headers name these types;
// code that calls cuBLASLt itself needs the real header.
#pragma once
typedef struct cublasLtContext* cublasLtHandle_t;
