// Libraries that a program looks for when it first needs them: it starts without them, and where
// they are not installed.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"

namespace cairn {

// A shared library, loaded for the rest of the process.
// Thread safety: immutable once its functions are found.
class DynamicLibrary {
 public:
  // Loads `file` ("libnccl.so.2") from where the loader looks for libraries. `name` is what its
  // users call it.
  DynamicLibrary(const char* name, std::string file);

  // The function `symbol`; null where the library has none, which `status` says.
  void* Find(const char* symbol);
  // kFailedPrecondition: the library, or a function that was looked for, is missing; says what to
  // do.
  const absl::Status& status() const { return status_; }

 private:
  const std::string name_;
  const std::string file_;
  void* handle_ = nullptr;
  absl::Status status_;
};

// A function of a library: DynamicFunction<decltype(ncclSend)> send{library, "ncclSend"}.
// May be called once the library's status is ok.
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
