// The interface of a format to the fuzzer.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/file_fuzz/mutator.h"

namespace cairn::test {

// One reader under test. Thread safety: none.
class FuzzTarget {
 public:
  virtual ~FuzzTarget() = default;
  virtual std::string Make(Dice& dice) = 0;
  // Reads `input`. Returns "", or the error in how the input was read or refused.
  virtual std::string Try(const std::string& input) = 0;
  // Number of runs in a test; lower for targets with slow reads (a connection).
  virtual int64_t runs_of_a_test() const { return 20000; }
};

struct NamedTarget {
  const char* name;
  std::function<std::unique_ptr<FuzzTarget>()> make;
};
std::vector<NamedTarget> ConfigTargets();   // config_targets.cc
std::vector<NamedTarget> InputTargets();    // input_targets.cc
std::vector<NamedTarget> StorageTargets();  // storage_targets.cc
std::vector<NamedTarget> TrainerTargets();  // trainer_targets.cc
std::vector<NamedTarget> HttpTargets();     // http_target.cc

// The error in a message that refuses an input of `source`: "" if the message names the source, has
// no control characters except tabs, and fits one screen.
std::string WrongWithMessage(const std::string& message, const std::string& source);

}  // namespace cairn::test
