#include "tests/support/refusing_threads.h"

#include <dlfcn.h>
#include <pthread.h>

#include <cerrno>

namespace cairn::test {

std::atomic<bool> refuse_threads = false;

}  // namespace cairn::test

// Found before the C library's function, also by std::thread.
extern "C" __attribute__((visibility("default"))) int pthread_create(
    pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
    void* argument) noexcept {
  if (cairn::test::refuse_threads) return EAGAIN;
  static const auto next =
      reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  return next(thread, attributes, run, argument);
}
