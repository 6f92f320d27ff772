#include "common/dynamic_library.h"

#include <dlfcn.h>

#include "common/errors.h"

namespace cairn {

DynamicLibrary::DynamicLibrary(const char* name, std::string file)
    : name_(name), file_(std::move(file)), handle_(dlopen(file_.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ != nullptr) return;
  status_ = FailedPrecondition(name_, " is missing (", dlerror(),
                               "): install it, or name its directory in LD_LIBRARY_PATH");
}

void* DynamicLibrary::Find(const char* symbol) {
  if (handle_ == nullptr) return nullptr;
  void* const found = dlsym(handle_, symbol);
  if (found == nullptr) {
    status_.Update(
        FailedPrecondition(file_, " has no ", symbol, ": a newer ", name_, " is needed"));
  }
  return found;
}

}  // namespace cairn
