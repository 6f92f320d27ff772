// Every rule's update of one element or one vector of elements. The Highway kernels (kernels-inl.h)
// and the GPU loops (worker/ops/optimizer_kernels_cuda.h) include this file inside their own
// namespace, because each needs other attributes on every function. So this file includes nothing
// and has no #pragma once. The includer defines the attributes as CAIRN_FORMULA.
//
// Each rule has
//   static constexpr int kSlots;
//   Update(op, k, w, s0, s1, s2, g)
// Update changes the variable's element `w` and its slots by the gradient `g`, and leaves slots
// that the rule does not have. `k` holds the constants of UpdateStep: k[0] and k[1] for Guard, and
// from k[2] on those listed at the rule. `op` computes on V, a float or a vector of floats:
//   Set(x)                     x in every lane
//   Add, Sub, Mul, Div         rounded once
//   MulAdd(a, b, c)            a * b + c; rounded once on vectors and GPUs that can fuse it
//   MulSub, NegMulAdd          a * b - c, c - a * b, likewise
//   Sqrt, Abs, Neg, CopySign
//   Max(a, b), Min(a, b)       unspecified if either is NaN
//   IfGreater(a, b, yes, no)   a > b ? yes : no, so `no` for NaN
//   ZeroIfZero(test, x)        test == 0 ? 0 : x
//   Power(x, exponent)         x to the power of a scalar

// average + (sample - average) * rest: Keras' form of a moving average.
template <class Op, class V>
CAIRN_FORMULA V Moved(Op op, V average, V sample, V rest) {
  return op.MulAdd(op.Sub(sample, average), rest, average);
}

// Clips the gradient to [-k[0], k[0]] and decays the weight by k[1], before the rule. NaN stays
// NaN.
template <class Op, class K, class V>
CAIRN_FORMULA void Guard(Op op, const K& k, V& w, V& g) {
  const V bound = op.Set(k[0]);
  g = op.IfGreater(g, bound, bound, g);
  g = op.IfGreater(op.Neg(bound), g, op.Neg(bound), g);
  w = op.NegMulAdd(w, op.Set(k[1]), w);
}

// k: rate.
struct SgdRule {
  static constexpr int kSlots = 0;
  template <class Op, class K, class V>
  static CAIRN_FORMULA void Update(Op op, const K& k, V& w, V&, V&, V&, V g) {
    w = op.NegMulAdd(op.Set(k[2]), g, w);
  }
};

// k: rate, momentum. Slot: momentum.
template <bool kNesterov>
struct MomentumRule {
  static constexpr int kSlots = 1;
  template <class Op, class K, class V>
  static CAIRN_FORMULA void Update(Op op, const K& k, V& w, V& m, V&, V&, V g) {
    const V mu = op.Set(k[3]);
    const V step = op.Mul(op.Set(k[2]), g);
    m = op.MulSub(mu, m, step);
    w = op.Add(w, kNesterov ? op.MulSub(mu, m, step) : m);
  }
};

// k: rate, epsilon. Slot: accumulator.
struct AdagradRule {
  static constexpr int kSlots = 1;
  template <class Op, class K, class V>
  static CAIRN_FORMULA void Update(Op op, const K& k, V& w, V& accumulator, V&, V&, V g) {
    accumulator = op.MulAdd(g, g, accumulator);
    const V root = op.Sqrt(op.Add(accumulator, op.Set(k[3])));
    w = op.Sub(w, op.Div(op.Mul(op.Set(k[2]), g), root));
  }
};

// k: rate, rho, 1 - rho, epsilon. Slots: accumulated_grad, accumulated_delta_var.
struct AdadeltaRule {
  static constexpr int kSlots = 2;
  template <class Op, class K, class V>
  static CAIRN_FORMULA void Update(Op op, const K& k, V& w, V& squares, V& deltas, V&, V g) {
    const V rho = op.Set(k[3]), rest = op.Set(k[4]), epsilon = op.Set(k[5]);
    squares = op.MulAdd(rho, squares, op.Mul(rest, op.Mul(g, g)));
    const V delta =
        op.Div(op.Mul(op.Sqrt(op.Add(deltas, epsilon)), g), op.Sqrt(op.Add(squares, epsilon)));
    deltas = op.MulAdd(rho, deltas, op.Mul(rest, op.Mul(delta, delta)));
    w = op.NegMulAdd(op.Set(k[2]), delta, w);
  }
};

// k: rate, rho, 1 - rho, epsilon, momentum. Slots: velocity, momentum (if any), average_gradient
// (if centered).
template <bool kMomentum, bool kCentered>
struct RmspropRule {
  static constexpr int kSlots = 1 + (kMomentum ? 1 : 0) + (kCentered ? 1 : 0);
  template <class Op, class K, class V>
  static CAIRN_FORMULA void Update(Op op, const K& k, V& w, V& velocity, V& s1, V& s2, V g) {
    const V rho = op.Set(k[3]), rest = op.Set(k[4]);
    velocity = op.MulAdd(rho, velocity, op.Mul(rest, op.Mul(g, g)));
    V variance = velocity;
    if constexpr (kCentered) {
      V& average = kMomentum ? s2 : s1;
      average = op.MulAdd(rho, average, op.Mul(rest, g));
      // Negative only because of rounding; Keras would take the root of a negative number.
      variance = op.Max(op.Set(0), op.NegMulAdd(average, average, velocity));
    }
    const V root = op.Sqrt(op.Add(variance, op.Set(k[5])));
    const V step = op.Div(op.Mul(op.Set(k[2]), g), root);
    if constexpr (kMomentum) {
      s1 = op.MulAdd(op.Set(k[6]), s1, step);
      w = op.Sub(w, s1);
    } else {
      w = op.Sub(w, step);
    }
  }
};

// k: alpha, 1 - beta_1, 1 - beta_2, epsilon. Slots: momentum, velocity, velocity_hat (if amsgrad).
template <bool kAmsgrad>
struct AdamRule {
  static constexpr int kSlots = kAmsgrad ? 3 : 2;
  template <class Op, class K, class V>
  static CAIRN_FORMULA void Update(Op op, const K& k, V& w, V& m, V& v, V& v_hat, V g) {
    m = Moved(op, m, g, op.Set(k[3]));
    v = Moved(op, v, op.Mul(g, g), op.Set(k[4]));
    if constexpr (kAmsgrad) v_hat = op.Max(v_hat, v);
    const V root = op.Add(op.Sqrt(kAmsgrad ? v_hat : v), op.Set(k[5]));
    w = op.Sub(w, op.Div(op.Mul(op.Set(k[2]), m), root));
  }
};

// k: rate / (1 - beta_1^t), 1 - beta_1, beta_2, epsilon. Slots: momentum, norm.
struct AdamaxRule {
  static constexpr int kSlots = 2;
  template <class Op, class K, class V>
  static CAIRN_FORMULA void Update(Op op, const K& k, V& w, V& m, V& norm, V&, V g) {
    m = Moved(op, m, g, op.Set(k[3]));
    norm = op.Max(op.Mul(op.Set(k[4]), norm), op.Abs(g));
    const V divisor = op.Add(norm, op.Set(k[5]));
    w = op.Sub(w, op.Div(op.Mul(op.Set(k[2]), m), divisor));
  }
};

// k: rate * u_next / (1 - u_product_next), rate * (1 - u) / (1 - u_product), 1 - beta_1, 1 -
// beta_2, 1 / (1 - beta_2^t), epsilon. Slots: momentum, velocity.
struct NadamRule {
  static constexpr int kSlots = 2;
  template <class Op, class K, class V>
  static CAIRN_FORMULA void Update(Op op, const K& k, V& w, V& m, V& v, V&, V g) {
    m = Moved(op, m, g, op.Set(k[4]));
    v = Moved(op, v, op.Mul(g, g), op.Set(k[5]));
    const V step = op.MulAdd(op.Set(k[2]), m, op.Mul(op.Set(k[3]), g));
    const V root = op.Sqrt(op.Mul(v, op.Set(k[6])));
    w = op.Sub(w, op.Div(step, op.Add(root, op.Set(k[7]))));
  }
};

// k: rate, beta_1, 1 - beta_1, beta_2, 1 - beta_2. Slot: momentum.
struct LionRule {
  static constexpr int kSlots = 1;
  template <class Op, class K, class V>
  static CAIRN_FORMULA void Update(Op op, const K& k, V& w, V& m, V&, V&, V g) {
    const V mixed = op.MulAdd(op.Set(k[3]), m, op.Mul(op.Set(k[4]), g));
    w = op.Sub(w, op.ZeroIfZero(mixed, op.CopySign(op.Set(k[2]), mixed)));
    m = op.MulAdd(op.Set(k[5]), m, op.Mul(op.Set(k[6]), g));
  }
};

// FTRL-proximal (McMahan et al., "Ad click prediction: a view from the trenches", KDD 2013), in
// Keras' form with beta and l2 shrinkage. k: 1 / rate, l1, 2 * l2_shrinkage, 2 * l2 + beta / rate,
// -learning_rate_power. Slots: accumulator, linear. kSquareRoot: the power is -0.5, the default.
template <bool kSquareRoot>
struct FtrlRule {
  static constexpr int kSlots = 2;

  // accumulator^-learning_rate_power. Powers other than the default are rare.
  template <class Op, class V, typename T>
  static CAIRN_FORMULA V PowerOf(Op op, V x, T exponent) {
    if constexpr (kSquareRoot) {
      return op.Sqrt(x);
    } else {
      return op.Power(x, exponent);
    }
  }

  template <class Op, class K, class V>
  static CAIRN_FORMULA void Update(Op op, const K& k, V& w, V& accumulator, V& linear, V&, V g) {
    const V inverse_rate = op.Set(k[2]), l1 = op.Set(k[3]);
    const V before = PowerOf(op, accumulator, k[6]);
    accumulator = op.MulAdd(g, g, accumulator);
    const V after = PowerOf(op, accumulator, k[6]);
    const V shrunk = op.MulAdd(op.Set(k[4]), w, g);
    const V pull = op.Mul(op.Sub(after, before), inverse_rate);
    linear = op.Add(linear, op.NegMulAdd(pull, w, shrunk));
    const V clipped = op.Max(op.Neg(l1), op.Min(l1, linear));
    const V quadratic = op.MulAdd(after, inverse_rate, op.Set(k[5]));
    // Zero only if the accumulator is still zero: nothing was learned yet, and Keras would compute
    // 0 / 0.
    w = op.ZeroIfZero(quadratic, op.Div(op.Sub(clipped, linear), quadratic));
  }
};

// Calls visit(Rule{}) with the rule of `loop`, except for kNone. `Loop` is OptimizerLoop.
template <class Loop, class Visit>
void VisitRule(const Loop& loop, const Visit& visit) {
  using Kind = typename Loop::Kind;
  switch (loop.kind) {
    case Kind::kNone: return;
    case Kind::kSgd: return visit(SgdRule());
    case Kind::kMomentum:
      return loop.nesterov ? visit(MomentumRule<true>()) : visit(MomentumRule<false>());
    case Kind::kAdagrad: return visit(AdagradRule());
    case Kind::kAdadelta: return visit(AdadeltaRule());
    case Kind::kRmsprop:
      if (loop.momentum) {
        return loop.centered ? visit(RmspropRule<true, true>()) : visit(RmspropRule<true, false>());
      }
      return loop.centered ? visit(RmspropRule<false, true>()) : visit(RmspropRule<false, false>());
    case Kind::kAdam: return loop.amsgrad ? visit(AdamRule<true>()) : visit(AdamRule<false>());
    case Kind::kAdamax: return visit(AdamaxRule());
    case Kind::kNadam: return visit(NadamRule());
    case Kind::kLion: return visit(LionRule());
    case Kind::kFtrl: return loop.square_root ? visit(FtrlRule<true>()) : visit(FtrlRule<false>());
  }
}
