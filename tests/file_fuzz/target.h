// What a format brings to the fuzzer.
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
  // Reads `input`; "" or what is wrong with how it was read or refused.
  virtual std::string Try(const std::string& input) = 0;
  // Inputs a read of which is slow (a connection): fewer of them run in a test.
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

// What is wrong with an error that refuses an input of `source`: "" for a message that names the
// source and has no control characters but tabs and at most a screen of text.
std::string WrongWithMessage(const std::string& message, const std::string& source);

}  // namespace cairn::test
