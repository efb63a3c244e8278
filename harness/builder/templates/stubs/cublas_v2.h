// liftbench stand-in: the CUDA toolkit in use has no cuBLAS. PyTorch's headers name these types;
// code that calls cuBLAS itself needs the real header.
#pragma once
typedef struct cublasContext* cublasHandle_t;
typedef enum { CUBLAS_STATUS_SUCCESS = 0 } cublasStatus_t;
