// Reading blocks from `source`, an array of words whose name is replaced by the binding's. Blocks begin at even bytes.

// The half-precision number at an even byte.
fn source_half(byte: u32) -> f32 {
    return unpack2x16float(source[byte >> 2u] >> ((byte & 2u) * 8u)).x;
}

// The byte at any place, as a number.
fn source_byte(byte: u32) -> u32 {
    return (source[byte >> 2u] >> ((byte & 3u) * 8u)) & 0xffu;
}

// The 4 bytes from an even one on.
fn source_word(byte: u32) -> u32 {
    let i = byte >> 2u;
    if ((byte & 2u) == 0u) {
        return source[i];
    }
    return (source[i] >> 16u) | (source[i + 1u] << 16u);
}

// The 8 bytes from an even one on.
fn source_words(byte: u32) -> vec2<u32> {
    let i = byte >> 2u;
    let words = vec2<u32>(source[i], source[i + 1u]);
    if ((byte & 2u) == 0u) {
        return words;
    }
    return (words >> vec2<u32>(16u)) | (vec2<u32>(words.y, source[i + 2u]) << vec2<u32>(16u));
}
