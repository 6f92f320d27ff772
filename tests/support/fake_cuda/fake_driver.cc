// The part of CUDA's driver API that Cairn's host code calls: a thread's current context.
#include "tests/support/fake_cuda/fake_gpus.h"
#include "tests/support/fake_cuda/fake_registry.h"

extern "C" {

// A context's handle is its device's number, counted from 1.
int cuCtxGetCurrent(struct CUctx_st** context) {
  const int device = cairn::test::fake::CurrentContext();
  *context = reinterpret_cast<CUctx_st*>(static_cast<intptr_t>(device + 1));
  return 0;
}

int cuCtxSetCurrent(struct CUctx_st* context) {
  cairn::test::fake::SetCurrentContext(static_cast<int>(reinterpret_cast<intptr_t>(context)) - 1);
  return 0;
}
}
