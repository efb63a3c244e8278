// liftbench stand-in: the CUDA toolkit in use has no cuSPARSE. PyTorch's headers name these types;
// code that calls cuSPARSE itself needs the real header.
#pragma once
typedef struct cusparseContext* cusparseHandle_t;
typedef enum { CUSPARSE_STATUS_SUCCESS = 0 } cusparseStatus_t;
