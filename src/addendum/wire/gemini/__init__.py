"""The Gemini `generateContent` wire API."""
