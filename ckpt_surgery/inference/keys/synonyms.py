"""Tables of the words in keys of published models and libraries, by their meaning.

Each line is `concepts: phrase, phrase, …`. A phrase is written as its words are split: in lower case,
with numbers apart (`wi 0` is `wi_0`, `layer norm` is `LayerNorm`). The longest phrase that begins at a word
counts. `-` stands for no concept: words that say nothing.
"""

SPELLINGS = {
    "selfattention": "self attention",
    "crossattention": "cross attention",
    "layernorm": "layer norm",
    "layrnorm": "layer norm",
    "batchnorm": "batch norm",
    "groupnorm": "group norm",
    "rmsnorm": "rms norm",
    "prelayernorm": "pre layer norm",
    "feedforward": "feed forward",
    "encoderblock": "encoder layer",
    "decoderblock": "decoder layer",
    "resblocks": "layer",
    "posembed": "pos embed",
    "posemb": "pos embed",
    "multihead": "multi head",
    "wq": "w q",
    "wk": "w k",
    "wv": "w v",
}
"""Words that are written as one."""

ANYWHERE = """
-: params, target, model, module, net, variables, batch stats, orig mod
layer: layers, layer, block, blocks, h
encoder: encoder, enc
decoder: decoder, dec
text: text model, text, language model, txt
vision: vision model, visual, vision, image, img, image encoder

attention: self attn, self attention, attn, attention, self multi head attention, multi head attention
attention: multi head dot product attention, attention self, attention attention, mha, mhsa, attention block
cross: cross attn, cross attention, enc dec attention, encoder decoder attention, encoder attn
cross: multi head cross attention
query: q proj, q, w q, query, q lin, query proj, query projection, to q, q einsum
key: k proj, k, w k, key, k lin, key proj, key projection, to k
value: value, v proj, v, w v, v lin, value proj, value projection, to v
qkv: c attn, attn c attn, qkv, in proj, qkv proj, wqkv, query key value, qkv einsum, self attention qkv
kv: kv, kv proj, wkv, kv einsum, to kv
attention out: attention output dense, attn vec einsum, attention output, attn out, attention out

mlp: mlp, ffn, ff, feed forward, dense relu dense, mlp block, ffw, feed forward network, mlp block 0
mlp moe: block sparse moe, moe block, moe, moe block 0, sparse moe block, moe layer
expert: experts, expert
sharedexpert: shared expert, shared experts
gate: gate proj, wi 0, w 1, linear gate, w gate
up: up proj, wi 1, w 3, fc 1, c fc, fc in, dense in, lin 1, linear 1, dense h to 4 h, w up, wi
down: down proj, w 2, fc 2, fc out, dense out, lin 2, linear 2, dense 4 h to h, w down
mlp up: intermediate dense, ffn lin 1, mlp 0 weight
mlp up bias: mlp 0 bias
mlp down: output dense, ffn lin 2, mlp 2 weight
mlp down bias: mlp 2 bias
gate router: gate, router, router gate, router weights, gate kernel

norm: layer norm, rms norm, norm, ln, rms, batch norm, bn, group norm, gn, layer norms
norm before: ln 1, input layer norm, pre attention norm, pre attention layer norm, pre self attention norm
norm before: input norm
norm before: pre self attention layer norm, attention norm, attn norm, attn ln, self attn layer norm
norm before: layer norm 1, norm 1, layer norm before, norm before, pre attn norm, attention layer norm
norm before: sa layer norm
norm beforecross: encoder attn layer norm, cross attn ln, pre cross attention layer norm, cross attn norm
norm beforecross: pre cross attention norm, cross attention layer norm, encoder decoder attention layer norm
norm between: ln 2, norm 2, layer norm 2, layer norm after, norm after
norm between premlp: ffn norm, mlp ln, pre mlp norm, pre mlp layer norm, pre ffw norm, mlp norm
norm between premlp: pre feed forward layer norm, pre feed forward norm, mlp layer norm, ffn layer norm
norm between postattention: post attention layer norm, post attention norm, post self attention layer norm
norm between postattention: post self attention norm, attention output layer norm, post attn norm
norm after: post feed forward layer norm, post ffw norm, post mlp norm, output layer norm
norm after: post feed forward norm, post mlp layer norm
decoder norm final: decoder norm
encoder norm final: encoder norm
norm final: final norm, ln f, ln final, ln post, post layer norm, norm f
norm final: final ln, model norm, transformer norm
norm initial: ln pre, pre layer norm, norm pre
query norm: q norm, query norm, query layer norm, q layer norm, q ln
key norm: k norm, key norm, key layer norm, k layer norm, k ln

embedding: embedding, embeddings, embed, emb, embedder
embedding token: embed tokens, wte, token embedder, tok embeddings, token embedding, token embeddings, tok emb
embedding token: word embeddings, shared, embed in, input embedding, token embed, word embedding, word embed
embedding position: wpe, position embeddings, position embedding, positional embedding, pos embedding
embedding position: pos embed, embed positions, pos embed input, position embed, pos emb
embedding type: token type embeddings, segment embeddings, type embeddings, token type embedding
embedding patch: patch embed, patch embed proj, patch embeddings, patch embeddings projection, patch embedding
vision embedding patch: visual conv 1
embedding class: cls token, cls, class embedding, class token
relpos: relative attention bias, relpos bias rel embedding, relpos bias, rel embedding, rel pos bias
logits: lm head, logits dense, embed out, proj out, unembed, logits, predictions decoder
logits: cls predictions decoder, output projection, predictions output
classifier: classifier, head, fc, classification head
predictions: cls predictions, predictions
pooler: pooler, pooler dense
textprojection: text projection
visionprojection: visual projection, vision projection, visual proj
scaling: logit scale, logit scaling

weight: weight, kernel, w, scale, gamma, weights
weight: weight value, kernel value, scale value, gamma value, embedding value
bias: bias, beta, b, bias value, beta value
mean: running mean, moving mean, mean, mean value
var: running var, moving variance, var, moving var, variance, var value
step: step, global step, count, num batches tracked, iteration, optimizer step, optimizer state step
quantscale: weight scale, kernel scale, weight scale inv, qscale
optimizer: opt state, optimizer, optimizer state, param states, opt, slot variables
m: mu, exp avg, adam m, slot m, trace, momentum, momentum buffer, inner m
v: nu, exp avg sq, adam v, slot v, inner v
vrow: v row, slot vr
vcol: v col, slot vc
ema: ema, moving average, exponential moving average, ema params
lora first: lora a, lora down
lora second: lora b, lora up
"""
"""Phrases at any place."""

IN_ATTENTION = """
out: o proj, o, wo, c proj, proj, out, dense, output, out proj, to out, to out 0, output dense, output proj
out: w o, out lin, linear
qkv: in proj, c attn
"""
"""Phrases behind the word for an attention."""

IN_MLP = """
down: wo, c proj, proj, dense 1, output dense, output, down
up: dense 0, fc, up, wi
"""
"""Phrases behind the word for an MLP."""

IN_LAYER = """
norm between premlp: final layer norm
out: o proj, out proj
"""
"""Phrases behind the word for a layer."""

AT_THE_END = """
-: value
"""
"""Last words, but not behind the word for an attention: variables of Flax NNX end in `value`."""

IN_OPTIMIZER = """
m: m
v: v
"""
"""Last words in the state of an optimizer."""

ROOT = """
logits: output, output weight, output kernel
"""
"""Phrases at the start of a key, words that say nothing aside."""

EXCLUSIVE = """
query key value qkv kv out
gate up down out qkv kv
attention cross mlp
before beforecross between after final initial somewhere
encoder decoder
text vision
textprojection visionprojection
token position type patch class relpos
embedding logits pooler
embedding classifier pooler
weight bias mean var
m v vrow vcol
first second
"""
"""Concepts that exclude each other, line by line: leaves with different ones are not the same."""

TOGETHER = """
mean var step m v vrow vcol ema optimizer lora quantscale relpos position type class norm
sharedexpert
"""
"""Concepts that two leaves must share, or both lack, to be the same."""
