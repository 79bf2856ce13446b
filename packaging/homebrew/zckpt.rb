# Homebrew on Linux: zckpt is for Linux alone. `sha256` is of the archive that `make dist` writes
# (SHA256SUMS); until a release has an address, `brew install --build-from-source --HEAD` of a clone.
class Zckpt < Formula
  desc "Converter and resharder of DeepSpeed ZeRO checkpoints"
  homepage "https://zckpt.invalid/"
  url "file:///path/to/zckpt-0.1.0.tar.gz"
  sha256 "0000000000000000000000000000000000000000000000000000000000000000"
  license "Apache-2.0"

  depends_on "pkgconf" => :build
  depends_on "cjson"
  depends_on "libarchive"
  depends_on "libdeflate"
  depends_on "libyaml"
  depends_on :linux
  depends_on "openblas"
  depends_on "openssl@3"
  depends_on "xxhash"
  depends_on "zstd"

  def install
    system "make", "install", "PREFIX=#{prefix}", "MPI=0", "CUDA=0", "URING=0", "HTTP=0", "FUSE=0", "JSON=system",
           "PACK=1", "YAML=1", "CRYPTO=1", "BLAS=1"
  end

  test do
    (testpath/"model.json").write <<~JSON
      {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu", "hidden_size": 64,
       "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
       "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": false,
       "vocab_size": 257, "torch_dtype": "float32"}
    JSON
    system bin/"ztrain", "--model", "model.json", "--random", "--seq", "33", "--steps", "2", "--save", "run"
    system bin/"zckpt", "convert", "run", "model.safetensors"
    assert_path_exists testpath/"model.safetensors"
  end
end
