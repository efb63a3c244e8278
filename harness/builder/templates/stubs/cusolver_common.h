// liftbench stand-in: the CUDA toolkit in use has no cuSOLVER. PyTorch's headers name these types;
// code that calls cuSOLVER itself needs the real header.
#pragma once
typedef enum { CUSOLVER_STATUS_SUCCESS = 0 } cusolverStatus_t;
