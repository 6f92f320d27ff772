// Libraries that a program loads when it first needs them, so that it also starts on machines where
// they are not installed.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"

namespace cairn {

// A shared library, loaded for the rest of the process.
// Thread safety: immutable once its functions have been looked up.
class DynamicLibrary {
 public:
  // Loads `file` ("libnccl.so.2") from the dynamic loader's search path. `name` is the library's
  // name in messages.
  DynamicLibrary(const char* name, std::string file);

  // The function `symbol`, or null if the library does not have it; `status` then says so.
  void* Find(const char* symbol);
  // kFailedPrecondition: the library or a requested function is missing; the message says what to
  // do.
  const absl::Status& status() const { return status_; }

 private:
  const std::string name_;
  const std::string file_;
  void* handle_ = nullptr;
  absl::Status status_;
};

// A function of a library: DynamicFunction<decltype(ncclSend)> send{library, "ncclSend"}.
// May be called if the library's status is OK.
template <typename Function>
class DynamicFunction {
 public:
  DynamicFunction(DynamicLibrary& library, const char* symbol)
      : function_(reinterpret_cast<Function*>(library.Find(symbol))) {}

  template <typename... Arguments>
  auto operator()(Arguments&&... arguments) const {
    return function_(std::forward<Arguments>(arguments)...);
  }

 private:
  Function* const function_;
};

}  // namespace cairn
