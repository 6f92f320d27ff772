#include "tests/support/refusing_threads.h"

#include <dlfcn.h>
#include <pthread.h>

#include <cerrno>

namespace cairn::test {

std::atomic<int64_t> threads_left = -1;

namespace {

bool IsRefused() {
  int64_t left = threads_left.load();
  while (left > 0 && !threads_left.compare_exchange_weak(left, left - 1)) {
  }
  return left == 0;
}

}  // namespace

}  // namespace cairn::test

// Found before the C library's function, also by std::thread.
extern "C" __attribute__((visibility("default"))) int pthread_create(
    pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
    void* argument) noexcept {
  if (cairn::test::IsRefused()) return EAGAIN;
  static const auto next =
      reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  return next(thread, attributes, run, argument);
}
