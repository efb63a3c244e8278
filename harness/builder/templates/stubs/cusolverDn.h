// liftbench stand-in: the CUDA toolkit in use has no cuSOLVER. PyTorch's headers name these types;
// code that calls cuSOLVER itself needs the real header.
#pragma once
#include "cusolver_common.h"
typedef struct cusolverDnContext* cusolverDnHandle_t;
